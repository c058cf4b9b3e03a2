"""Read what a user names as a source, as raw documents.

`formats` finds the files, knows the reader of each format, and cuts files into ranges
(`records.InputRange`); a reader turns a range into `records.RawDocument`. Dumps use dump_pages (any
byte range to pages) and wikitext/; books use gutenberg; tables and JSON use rows and
extracted (the remains of wikitext in extracted articles). All share compression (decompressed
streams, damage, bombs) and lines (the lines of any byte range).
"""
