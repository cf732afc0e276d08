"""Rows through a script in JavaScript or TypeScript, which Deno runs beside each Spark task without any permission.

The rows of a batch travel as columns: one JSON text there and one back. The program in Deno (`host.js`, and a
generated `main.js` that knows the columns) makes an object of each row, calls `invoke`, and gathers what it returns
into columns again.
"""
