"""Wikitext to paragraphs of prose: markup, templates, names, numbers, and repair."""
