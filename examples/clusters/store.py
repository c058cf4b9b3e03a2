"""An S3 server, MinIO, on a host of its own."""

import time
from dataclasses import dataclass
from pathlib import Path

from downloads import minio
from hosts import Host, Network

NAME = "store"
PORT = 9000
BUCKET = "bucket"
DATA = "/tmp/s3"
START_S = 60.0
METRICS_AGE_S = 11.0
"""The server counts anew only every ten seconds."""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "trial",
    "AWS_SECRET_ACCESS_KEY": "trial-of-a-cluster",
    "AWS_ENDPOINT_URL": f"http://{NAME}:{PORT}",
}
"""The environment that a host needs to reach the server."""


@dataclass
class Store:
    """The server; its files stay when it is restarted."""

    host: Host

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [str(minio()), "server", DATA, "--address", f":{PORT}", "--quiet"]
        self._server = self.host.start(
            *command,
            environment={
                "MINIO_ROOT_USER": CREDENTIALS["AWS_ACCESS_KEY_ID"],
                "MINIO_ROOT_PASSWORD": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
                "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            },
        )
        health = f"http://localhost:{PORT}/minio/health/ready"
        give_up = time.monotonic() + START_S
        while self.host.run("curl", "--silent", "--fail", health).returncode != 0:
            if time.monotonic() > give_up:
                raise RuntimeError(f"{NAME} does not answer; see {self.host.logs}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Kill the server; its host stays up and refuses connections."""
        self._server.kill()

    def path(self, name: str) -> Path:
        """Return where this machine finds what the store keeps of ``s3://bucket/NAME``.

        It exists as soon as the object does.
        """
        return Path(f"/proc/{self.host.pid}/root{DATA}/{BUCKET}", name)

    def num_requests(self) -> dict[str, int]:
        """Return how many requests of each kind the server has had since it was started."""
        time.sleep(METRICS_AGE_S)
        address = f"http://localhost:{PORT}/minio/v2/metrics/cluster"
        metrics = self.host.run("curl", "--silent", address).stdout
        requests = {}
        for line in metrics.splitlines():
            if line.startswith("minio_s3_requests_total{"):
                labels, _, value = line.rpartition(" ")
                api = labels.partition('api="')[2].partition('"')[0]
                requests[api] = int(float(value))
        return requests


def start_store(network: Network, disk: str = "8g") -> Store:
    """Start a host with a store, whose disk has so many bytes."""
    host = network.add_host(NAME, environment=CREDENTIALS, tmp_size=disk)
    store = Store(host)
    store.start()
    return store
