"""Text of SQL before Spark sees it: a lexer, file references and our own statements as frozen values."""
