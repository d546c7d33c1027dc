"""``holdfast serve``: the HTTP API and the dashboard."""

from __future__ import annotations

import ipaddress

import click

from holdfast import config
from holdfast.cli.app_options import app_flags, app_options
from holdfast.cli.app_path import find_app
from holdfast.cli.common import plain_app, url_option
from holdfast.cli.errors import FAILED, USAGE, CommandError
from holdfast.cli.service_options import service_flags, service_options
from holdfast.cli.worker import log_format_option, log_level_option
from holdfast.errors import MissingExtraError
from holdfast.observe import logging
from holdfast.observe.redaction import redacted
from holdfast.runtime.event_loop import run


@click.command()
@click.argument("app", metavar="MODULE:APP", required=False)
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [127.0.0.1]")
@click.option("--port", metavar="N", help="The port; 0 takes any free port.  [8080]")
@click.option("--certificate", metavar="FILE", help="The TLS certificate chain, PEM.")
@click.option("--certificate-key", metavar="FILE", help="Its private key, PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front terminates TLS.")
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy or its network, whose X-Forwarded headers count; implies --behind-proxy.",
)
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="An origin whose pages may call the API."
)
@service_options
@app_options
@log_level_option
@log_format_option
@url_option
def serve(  # noqa: PLR0913  # one per option
    *,
    app: str | None,
    host: str | None,
    port: str | None,
    certificate: str | None,
    certificate_key: str | None,
    behind_proxy: bool,
    proxies: tuple[str, ...],
    cors: tuple[str, ...],
    log_level: str | None,
    log_format: str | None,
    url: str | None,
    **given: object,
) -> None:
    """Serve every operation over HTTP until TERM or INT; /docs describes them.

    While no API key exists, only this machine may call: create one with `holdfast keys create`.
    MODULE:APP supplies the defaults of its tasks to submitted jobs.
    """
    flags = {
        "app": app,
        "url": url,
        "listen.host": host,
        "listen.port": port,
        "log.level": log_level,
        "log.format": log_format,
        **service_flags(given),
        **app_flags(given),
    }
    settings = config.load(flags=flags)
    logging.configure(settings.text("log.level"), settings.text("log.format"))
    found = find_app(settings)[1] if app else plain_app(settings)
    try:
        from holdfast.dashboard import Dashboard
        from holdfast.http import server
    except ImportError as error:
        raise MissingExtraError("server", str(error.name)) from None
    place = server.ListenAddress(
        host=settings.text("listen.host"),
        port=int(settings.text("listen.port")),
        certificate=certificate,
        certificate_key=certificate_key,
        behind_proxy=behind_proxy or bool(proxies),
        proxies=_networks(proxies),
        cors=cors,
        limits=config.connection_limits(settings),
    )

    def announce(address: str, keys: int) -> None:
        click.echo(f"serving {redacted(found.url)} at {address}, documented at {address}/docs")
        click.echo(f"the dashboard is at {address}/")
        if not keys:
            click.echo(
                "no API key exists: only this machine may call, and every user of it may do"
                " everything. Create one with 'holdfast keys create'"
            )

    try:
        run(
            server.serve(
                found,
                place,
                observer=logging.LogObserver(found.redaction),
                ready=announce,
                capacity=config.service_limits(settings),
                pages=Dashboard,
            )
        )
    except server.UnsafeAddressError as error:
        raise CommandError(str(error), USAGE) from None
    except OSError as error:
        raise CommandError(f"cannot listen on {place.host}:{place.port}: {error}", FAILED) from None


def _networks(given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            message = f"--proxy must be an IP address or a network such as 10.0.0.0/8: {error}"
            raise CommandError(message, USAGE) from None
    return given
