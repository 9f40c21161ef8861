import click
@click.command("decode")
def decode() -> None:
    pass
