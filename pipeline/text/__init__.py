"""Pure rules of text: wikitext to paragraphs, paragraphs to sentences, etexts to their books."""
