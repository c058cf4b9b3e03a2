"""Read what a user names as a source, as raw documents.

`formats` finds the files, knows the reader of each format, and cuts files into ranges
(`records.InputRange`); a reader turns a range into `records.RawDocument`: `wikipedia` reads dumps,
`books` plain text, `text_tables` and `tables` rows, which `rows` turns into documents, and `hub`
opens data sets. `streams` has what they share: decompressed streams, damage, bombs, lines.
"""
