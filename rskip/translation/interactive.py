"""Translation for a person at a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rskip.translation.translation import SentenceError


def converse(
    translate: Callable[[str], str],
    *,
    prompt: str,
    read: Callable[[str], str] = input,
    write: Callable[[str], None] = lambda text: print(text, end="", flush=True),
) -> None:
    """Asks for sentences and writes what `translate` makes of them, lines with their ends, until the input ends.

    An interrupt (Ctrl-C) gives up a sentence, whether it is being typed or being translated. A sentence that can't be
    translated is answered with the reason.
    """
    while True:
        try:
            sentence = read(prompt)
            if sentence.strip():
                write(translate(sentence))
        except KeyboardInterrupt:
            write("\n")
        except EOFError:
            write("\n")
            return
        except UnicodeDecodeError:
            write("(not valid UTF-8: set the terminal to UTF-8)\n")
        except SentenceError as error:
            write(f"({error.reason})\n")
        except ValueError as error:
            write(f"({error})\n")
