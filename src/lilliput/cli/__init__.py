"""The command line: one thin module per group of verbs; `console` shows everything the terminal shows."""
