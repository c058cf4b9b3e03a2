"""From raw text to masked sentence pairs: pure functions, and the units of work they run in.

The way of the data is the way through the files::

    ingest.py  -> documents/   sources/ (the readers: files to raw documents), sentences
                               phases: scatter, near_duplicates (minhash), duplicates, gather
    vocab.py   -> vocab/       tokenize (word counts), wordpiece (learning), vocabulary (files and report)
    build.py   -> instances/   tokenize (ids), chunks, pairs (balance), masking, instances
    audit.py                   measures, report: what came out; decode: rows for people to read

Under all of them lie config (the options), schemas (the columns), seeding (all randomness), stage (the output
directory, its manifest, resume), shards (Parquet), scattered (Arrow files between the phases), storage (files here or
remote), counters (counters), expectations (``--dry-run``), progress and errors. runner hands units of work to workers
(processes here) or to beam (Beam's runners). Nothing in this package imports torch.
"""
