"""Names of objects: what leads where, and that what leads nowhere is said with the way out."""

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fastq.worker.shared.names import AppNameError, name_of, resolve, split_name


class Holder:
    """An object with things under dotted names."""

    value = "held"

    def method(self) -> None:
        """A bound method."""


HOLDER = Holder()
under_another_name = Holder()


def function() -> None:
    """A hook."""


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("app:mux", ("app", "mux")),
        ("my.app.tasks:mux", ("my.app.tasks", "mux")),
        ("app:factory.mux", ("app", "factory.mux")),
        ("äpp:müx", ("äpp", "müx")),
    ],
)
def test_a_name_is_a_module_and_an_attribute(name: str, parts: tuple[str, str]) -> None:
    assert split_name(name) == parts


@pytest.mark.parametrize(
    "name",
    [
        *("", "app", ":", "app:", ":mux", "app.py", "app/tasks:mux", "app..tasks:mux", ".app:mux", "a b:mux"),
        *("app:a:b", "app:mux ", "app:mux.", "app:.mux", "app:a..b", "app:mux()", "1app:mux", "app:1"),
    ],
)
def test_what_is_no_name_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(AppNameError, match=r"is not of the form module:attr, for example \S+:(app|mux)") as raised:
        split_name(name)
    assert repr(name) in str(raised.value)


def test_a_name_leads_to_its_object() -> None:
    assert resolve("tests.worker.shared.test_names:HOLDER") is HOLDER
    assert resolve("tests.worker.shared.test_names:Holder.value") == "held"


def test_a_module_that_is_not_there_is_said_with_where_it_was_looked_for(modules: Path) -> None:
    with pytest.raises(AppNameError, match=r"'nosuch_app:mux': there is no module 'nosuch_app' in .*start in the app"):
        resolve("nosuch_app:mux")
    (modules / "package").mkdir()
    (modules / "package" / "__init__.py").touch()
    with pytest.raises(AppNameError, match=r"there is no module 'package.nosuch'"):
        resolve("package.nosuch:mux")
    with pytest.raises(AppNameError, match="there is no module 'nosuch_app'"):
        resolve("nosuch_app.tasks:mux")


def test_a_module_that_is_not_there_is_said_with_one_that_is_like_it(modules: Path) -> None:
    (modules / "jobs_app.py").touch()
    (modules / "shop").mkdir()
    (modules / "shop" / "__init__.py").touch()
    (modules / "shop" / "tasks.py").touch()
    with pytest.raises(AppNameError, match=r"there is no module 'job_app' in .*; did you mean 'jobs_app'\?"):
        resolve("job_app:app")
    with pytest.raises(AppNameError, match=r"there is no module 'shop.task' in .*; did you mean 'shop.tasks'\?"):
        resolve("shop.task:app")
    with pytest.raises(AppNameError, match=r"there is no module 'shpo' in .*; did you mean 'shop.tasks'\?"):
        resolve("shpo.tasks:app")


def test_an_attribute_that_is_not_there_is_said_with_one_that_is_like_it(modules: Path) -> None:
    (modules / "app_a.py").write_text("mux = 1\n")
    with pytest.raises(AppNameError, match=r"'app_a:muxx': app_a has no 'muxx'; did you mean 'mux'\?"):
        resolve("app_a:muxx")
    with pytest.raises(AppNameError, match=r"app_a has no 'mux.handler'$"):
        resolve("app_a:mux.handler")
    (modules / "app_e.py").write_text("from fastq import App\napp = App()\nmap = ap2 = app.task('t')(lambda: None)\n")
    with pytest.raises(AppNameError, match=r"app_e has no 'ap'; did you mean 'app'\?$"):
        resolve("app_e:ap")
    with pytest.raises(AppNameError, match=r"app_e has no 'ma'; did you mean 'map'\?$"):
        resolve("app_e:ma")


def test_what_the_app_itself_raises_passes(modules: Path) -> None:
    # Its own traceback says more than we could.
    (modules / "app_b.py").write_text("import nosuch_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="nosuch_dependency"):
        resolve("app_b:mux")
    (modules / "app_c.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        resolve("app_c:mux")
    (modules / "app_d.py").write_text("from sys import nosuch\n")
    with pytest.raises(ImportError, match="nosuch"):
        resolve("app_d:mux")


def test_what_a_module_holds_has_a_name() -> None:
    assert name_of(function, "hook") == "tests.worker.shared.test_names:function"
    assert name_of(Holder, "hook") == "tests.worker.shared.test_names:Holder"
    assert name_of(Holder.method, "hook") == "tests.worker.shared.test_names:Holder.method"
    assert name_of(under_another_name, "hook") == "tests.worker.shared.test_names:under_another_name"
    assert name_of("any.where:thing", "hook") == "any.where:thing", "a name is only looked at, not imported"


@pytest.mark.parametrize("thing", [Holder(), HOLDER.method, lambda: None, object()])
def test_what_no_module_holds_has_no_name(thing: object) -> None:
    with pytest.raises(TypeError, match="hook must be named 'module:attr' or be an object that a module holds"):
        name_of(thing, "hook")


def test_a_text_that_is_no_name_is_refused() -> None:
    with pytest.raises(AppNameError, match="'nocolon' is not of the form"):
        name_of("nocolon", "hook")


def test_what_the_started_script_holds_can_be_imported_only_if_it_is_a_module(modules: Path) -> None:
    source = "from fastq.worker.shared.names import name_of\ndef hook(): ...\nNAME = name_of(hook, 'hook')\n"
    (modules / "script.py").write_text(source)
    with pytest.raises(TypeError, match="hook lives in the script that was started"):
        runpy.run_path(str(modules / "script.py"), run_name="__main__")
    found = runpy.run_module("script", run_name="__main__", alter_sys=True)
    assert found["NAME"] == "script:hook"


def test_things_in_modules_without_a_dict_are_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "odd", object())
    monkeypatch.setitem(sys.modules, "none", None)
    module = ModuleType("made")
    thing = object()
    module.thing = thing  # type: ignore[attr-defined]  # made here
    monkeypatch.setitem(sys.modules, "made", module)
    assert name_of(thing, "hook") == "made:thing"


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("app.mux", "app:mux"),
        ("pkg.app.mux", "pkg.app:mux"),
        ("./app.py:mux", "app:mux"),
        ("pkg/app.py:mux", "pkg.app:mux"),
        ("app.py", "myapp.tasks:app"),
        ("app", "app:app"),
        ("/srv/app.py:mux", "myapp.tasks:app"),
        ("app:mux x", "myapp.tasks:app"),
        (".", "myapp.tasks:app"),
    ],
)
def test_a_name_of_another_form_is_answered_with_the_one_that_was_meant(name: str, example: str) -> None:
    with pytest.raises(AppNameError) as raised:
        resolve(name)
    assert str(raised.value) == f"{name!r} is not of the form module:attr, for example {example}"


def test_who_names_a_file_is_told_its_module() -> None:
    with pytest.raises(AppNameError, match=r"no module 'json\.py' in .*; name the module, not its file: json:dumps$"):
        resolve("json.py:dumps")
