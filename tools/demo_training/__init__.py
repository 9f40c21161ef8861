"""How the embedded model came to be: its texts, its tokenizer, its training. Nothing here is installed with lilliput."""
