"""Names of objects (``module:attr``), resolved with errors that say how to fix them."""

import difflib
import importlib
import pkgutil
import sys


class AppNameError(ValueError):
    """Raised when a name does not lead to the expected object."""


def split_name(name: str) -> tuple[str, str]:
    """Return module and attribute of ``module:attr``; the attribute may have dots."""
    module, colon, attribute = name.partition(":")
    if not colon or not _is_dotted(module) or not _is_dotted(attribute):
        raise AppNameError(f"{name!r} is not of the form module:attr, for example {_example_for(name)}")
    return module, attribute


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _example_for(name: str) -> str:
    """Return the name that was probably meant: with a module instead of a file, or a colon instead of a dot."""
    if name.isidentifier():
        return f"{name}:app"
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    module = _module_of(module)
    is_meant = _is_dotted(module) and _is_dotted(attribute) and attribute != "py"
    return f"{module}:{attribute}" if is_meant else "myapp.tasks:app"


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removeprefix("./").replace("/", ".")


def resolve(name: str) -> object:
    """Import the object that ``module:attr`` names.

    Raises ``AppNameError`` if module or attribute does not exist. Errors that the module raises at import propagate.
    """
    module_name, attribute = split_name(name)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The name is wrong only if a module of its own path is missing. A missing import inside the module is the app's
        # defect.
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        advice = _near_module(module_name, error.name) or "start in the app's directory, or install the app"
        if module_name.endswith(".py"):
            advice = f"name the module, not its file: {_module_of(module_name)}:{attribute}"
        text = f"{name!r}: there is no module {error.name!r} in {_search_path()}; {advice}"
        raise AppNameError(text) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppNameError(f"{name!r}: {module_name} has no {attribute!r}{_suggest(part, found)}")
        found = getattr(found, part)
    return found


def _suggest(attribute: str, holder: object) -> str:
    """Return advice with a similar attribute, preferably an app; "" if there is no similar one."""
    names = dir(holder)
    loaded = sys.modules.get("fastq.mux")  # fastq.mux is not imported here, so that commands start fast
    apps = [name for name in names if loaded and isinstance(getattr(holder, name, None), loaded.ServeMux)]
    close = difflib.get_close_matches(attribute, apps, n=1) or difflib.get_close_matches(attribute, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _near_module(module: str, missing: str) -> str:
    """Return advice with a similar module; only the first directory of the path is searched."""
    package = missing.rpartition(".")[0]
    where = getattr(sys.modules.get(package), "__path__", ()) if package else sys.path[:1]
    names = [found.name for found in pkgutil.iter_modules([entry or "." for entry in where])]
    close = difflib.get_close_matches(missing.rpartition(".")[2], names, n=1)
    meant = f"{package}.{close[0]}".lstrip(".") + module.removeprefix(missing) if close else ""
    return f"did you mean {meant!r}?" if meant else ""


def _search_path() -> str:
    return ", ".join(repr(entry or ".") for entry in sys.path[:3]) + " …"


def name_of(thing: object, what: str) -> str:
    """Return the name ``module:attr`` of a module-level object, or such a text as it is; else raise ``TypeError``."""
    if isinstance(thing, str):
        split_name(thing)
        return thing
    module = getattr(thing, "__module__", None)
    qualified = getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(qualified, str) and _is_at(module, qualified, thing):
        return _checked(module, qualified, what)
    for module_name, loaded in list(sys.modules.items()):
        for attribute, value in list(getattr(loaded, "__dict__", {}).items()):
            if value is thing and not module_name.startswith("fastq."):
                return _checked(module_name, attribute, what)
    raise TypeError(
        f"{what} must be named 'module:attr' or be an object that a module holds under a name of its own, since child "
        f"processes import it: {thing!r} is neither"
    )


def _is_at(module: str, qualified: str, thing: object) -> bool:
    found: object = sys.modules.get(module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    return found is thing


def _checked(module: str, attribute: str, what: str) -> str:
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is None:
            raise TypeError(
                f"{what} lives in the script that was started, which child processes cannot import; move it to a "
                "module, or name it 'module:attr'"
            )
        module = spec.name
    return f"{module}:{attribute}"
