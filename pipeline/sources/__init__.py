"""Read what a user names as a source, as raw documents.

`formats` finds the files, knows the reader of each format, and cuts files into ranges; a reader
turns a range into raw documents: `wikipedia` reads dumps, `books` plain text, `wikiextractor`
articles, `jsonl`, `delimited` and `parquet` rows, which `row_documents` turns into documents, and
`hub` opens data sets. `streams` has what they share: ranges, raw documents, decompressed streams,
damage, bombs, lines.
"""
