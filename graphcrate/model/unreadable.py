"""What decoding a document that others wrote may raise. Whoever decodes one catches all of it."""

import msgspec

#: msgspec keeps DecodeError for what is no JSON, or not of the wanted form. Text that is no UTF-8 is a
#: UnicodeDecodeError, and brackets within brackets without end are a RecursionError.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
