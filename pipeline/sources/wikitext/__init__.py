"""Wikitext to paragraphs of prose: markup, templates, names and numbers, and how the text is repaired."""
