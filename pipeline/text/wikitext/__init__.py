"""Wikitext to paragraphs of prose: markup, templates, names and numbers, and the repair of the
text.
"""
