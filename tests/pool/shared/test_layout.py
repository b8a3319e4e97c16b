import pytest

from fastq.pool.shared import layout
from fastq.pool.shared.layout import Layout


def test_the_widths_of_the_layout_leave_no_overlap() -> None:
    assert layout.SLOTS_AT % layout.LINE == 0
    assert layout.ROW_DEADLINE_AT + 8 <= layout.ROW_WIDTH
    shape = Layout(100, 1 << 16)
    assert shape.task_ring_at >= layout.SLOTS_AT + 100 * layout.ROW_WIDTH
    assert shape.task_ring_at % layout.PAGE == 0
    assert layout.SLOTS_AT + shape.first_place * layout.ROW_WIDTH == shape.task_ring_at + 2 * (1 << 16)
    assert shape.size == shape.task_ring_at + 2 * (1 << 16) + layout.PLACES * layout.ROW_WIDTH


def test_no_two_fields_of_a_header_share_bytes() -> None:
    words = {
        name: getattr(layout, name)
        for name in dir(layout)
        if name.endswith("_AT") and not name.startswith(("ROW_", "RECORD_", "BELL", "SLOTS", "ROWS"))
    }
    assert len(set(words.values())) == len(words)
    lines = [words[name] for name in ("SLEEPING_AT", "SPACE_WANTED_AT", "COMMAND_AT", "REPORT_AT")]
    lines += [words[f"{ring}_{end}_AT"] for ring in ("TASK", "RESULT") for end in ("TAIL", "HEAD")]
    assert len({at // layout.LINE for at in lines}) == len(lines)


@pytest.mark.parametrize(("rows", "ring_bytes"), [(0, 4096), (1, 4095), (1, 6144), (1, 2048)])
def test_a_layout_that_cannot_be_is_refused(rows: int, ring_bytes: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        Layout(rows, ring_bytes)
