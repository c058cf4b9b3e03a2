"""The readers: what a user names as a source, as raw documents.

`formats` finds the files, knows the reader of each format, and cuts files into ranges (`records.InputRange`); a reader
turns a range into `records.RawDocument`. The readers, and what they use::

    wikipedia      dumps: dump_pages (any byte range to pages), wikitext/ (markup to passages)
    books          plain text: gutenberg (what surrounds a book); archives (zip and tar)
    tables, jsonl, wikiextractor
                   rows of Parquet, data sets and JSON: rows (a row to a document), extracted (what extractors leave
                   of wikitext)

They share compression (decompressed streams, damage, bombs) and lines (the lines of any byte range). Ingest splits
the documents by sentences.
"""
