"""The one exception of the package, and how names are shown in it."""

from __future__ import annotations

MOST_SHOWN = 200
"""Characters of a name that are shown."""


class Refused(ValueError):  # noqa: N818 - the word that users catch
    """A file or a solution is refused; the message says in one sentence which claim is false or malformed."""


def shown(name: object) -> str:
    r"""Return a name for a message: nothing in it can move the cursor, break the line or hide text.

    Examples
    --------
    >>> print(shown("crash\x1b[2J"))
    crash\x1b[2J
    """
    text = str(name)
    text = text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."
    # A space is printable, other separators and all control and formatting characters are not.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
