"""From raw text to masked sentence pairs: pure functions, and the Beam pipelines that run them.

The way of the data is the way through the files::

    sources -> wikipedia, wikitext, books -> sentences      ingest.py   documents/
    word counts -> wordpiece                                vocab.py    vocab/
    tokenize -> pairs -> masking -> instances               build.py    instances/
                                                            audit.py    what came out, measured

``runner.py`` alone knows Beam's runners. Nothing in this package imports torch.
"""
