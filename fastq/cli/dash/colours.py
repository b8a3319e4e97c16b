"""The colors of the dashboard; the states are easy to tell apart on a dark background."""

from typing import Final

from rich.terminal_theme import TerminalTheme

BLACK: Final = (18, 18, 18)
RED: Final = (226, 86, 77)
GREEN: Final = (136, 196, 80)
YELLOW: Final = (232, 178, 74)
BLUE: Final = (97, 153, 245)
MAGENTA: Final = (205, 120, 222)
CYAN: Final = (82, 192, 200)
WHITE: Final = (196, 196, 190)

NAMED: Final = [BLACK, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN, WHITE]
COLOURS: Final = TerminalTheme(BLACK, WHITE, NAMED, NAMED)
