"""The synopsis of a command, as its page has it."""

import click


def synopsis(path: tuple[str, ...], command: click.Command) -> str:
    """Write the command with its arguments and all options that its help shows, in the help's order."""
    shown = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    words = [_option(option) for option in shown if "--version" not in option.opts or path == ("version",)]
    return " ".join(["fastq", *path, *words, *(_argument(one) for one in arguments)])


def _option(option: click.Option) -> str:
    flags = [flag for flag in option.opts if "_" not in flag] + option.secondary_opts
    words = "|".join(sorted(flags, key=len)) if not option.secondary_opts else "|".join(flags)
    if not option.is_flag:
        words += f" {_value(option)}"
    if option.required:
        return words + ("..." if option.multiple else "")
    return f"[{words}]" + ("..." if option.multiple else "")


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or _value(argument)
    return name if argument.required else f"[{name.strip('[]')}]"


def _value(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option | click.Argument) and parameter.metavar:
        return parameter.metavar
    if isinstance(parameter.type, click.Choice):
        return f"{{{'|'.join(parameter.type.choices)}}}"
    number = isinstance(parameter.type, click.IntRange | click.FloatRange) or parameter.type is click.INT
    return "N" if number else (parameter.name or "").upper()
