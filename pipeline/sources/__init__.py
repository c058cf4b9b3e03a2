"""The readers: what a user names as a source, as raw documents.

``formats`` finds the files, knows which reader is for which, and cuts them into ranges (`records.InputRange`); a reader
turns a range into `records.RawDocument`. There are::

    wikipedia      dumps: dump_pages (any byte range to pages), wiki_names (which pages), wikitext (markup to passages,
                   with wikitext_templates, wikitext_local, wikitext_numbers, wikitext_repair)
    books          plain text: gutenberg (what stands around a book), archives, expansion (bombs)
    tables, jsonl, wikiextractor, hub
                   rows: rows (a row to a document), extracted (what extractors leave of wikitext)

Under them lies ``lines``: files decompressed, as blocks or lines, from any range of their bytes.
"""
