"""Go's white space: Unicode White_Space. Python's ``str.isspace`` also includes U+001C to U+001F."""

from typing import Final

GO_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
