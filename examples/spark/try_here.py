"""Try out Spark on this machine: a standalone master and three workers, each on its own host."""

import sys
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clusters"))

from downloads import spark, submission_jar
from hosts import SHARED, Host
from trial import TRIALS, WORKERS, Cluster, Engine, begin_ingest, main

POOL_PORT = 50000
MASTER = "spark://head:7077"
DRIVER = "DriverWrapper"
"""Of a job, on one of the workers' hosts."""
# Java 17 refuses what Spark does with these; a job submitted by REST does not get Spark's options.
OPENED = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util", "util.concurrent")
JAVA_OPTIONS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (*(f"java.{name}" for name in OPENED), "sun.nio.ch", "sun.nio.cs")
]
# Nor does it get other settings. Without these, a job has as many partitions as cores have joined
# when its driver starts, often two, and all its tasks run where the first ones did.
JOB_OPTIONS = ["-Dspark.default.parallelism=12", "-Dspark.locality.wait=0"]


class Spark(Engine):
    """A standalone cluster; on each worker's host a Spark worker and a pool of Python workers."""

    name = "spark"
    # A submitted jar is a file that all hosts must see.
    variables: ClassVar = {"TMPDIR": SHARED}
    needs_shared_folder = True

    def __init__(self) -> None:
        self.home = spark()
        self.jar = submission_jar("spark")

    def start_head(self, head: Host) -> None:
        options = ["--host", "head", "--port", "7077", "--webui-port", "8080"]
        # The timeout, in seconds, for slow or busy hosts.
        settings = ["-Dspark.master.rest.enabled=true", "-Dspark.worker.timeout=600"]
        program = [*settings, "org.apache.spark.deploy.master.Master"]
        self._start_java(head, *program, *options)

    def start_worker(self, worker: Host) -> None:
        pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
        worker.start(*pool, f"--service_port={POOL_PORT}")
        # On one of the hosts the job's driver takes a core and a gigabyte.
        size = [
            "--cores",
            "2",
            "--memory",
            "2g",
            "--work-dir",
            f"{SHARED}/spark",
            "--host",
            worker.name,
        ]
        self._start_java(worker, "org.apache.spark.deploy.worker.Worker", *size, MASTER)

    def _start_java(self, host: Host, *program: str) -> None:
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-classpath", f"{self.home}/jars/*"]
        environment = {
            "SPARK_HOME": str(self.home),
            "SPARK_SCALA_VERSION": "2.12",
            "JDK_JAVA_OPTIONS": " ".join([*JAVA_OPTIONS, *JOB_OPTIONS]),
        }
        host.start(*java, *program, environment=environment)

    def num_workers(self, head: Host) -> int:
        return head.run("curl", "--silent", "http://head:8080/json/").stdout.count('"ALIVE"') - 1

    def has_work(self, worker: Host) -> bool:
        return worker.has_process("SdkHarness") and not worker.has_process(DRIVER)

    def log(self, shared: Path) -> str:
        logs = shared.glob("spark/driver-*/stderr")
        return "".join(log.read_text(errors="replace") for log in logs)

    def flags(self) -> list[str]:
        return [
            "--runner=SparkRunner",
            "--spark_submit_uber_jar",
            "--spark_rest_url=http://head:6066",
            f"--spark_job_server_jar={self.jar}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{POOL_PORT}",
        ]

    def job_flags(self) -> list[str]:
        # The commands give this themselves; see examples/spark/README.md.
        return [*self.flags(), "--environment_cache_millis=60000"]


def lose_driver(cluster: Cluster) -> None:
    """Kill the host that runs the job's driver; start the command again."""
    with cluster.trial("the host of the driver killed, the command typed again"):
        command = begin_ingest(cluster, "lost-driver")
        hosts = cluster.network.hosts
        name = next(name for name in WORKERS if hosts[name].has_process(DRIVER))
        hosts[name].kill()
        cluster.check_line(cluster.end(command, status=1), "Error: ")
        cluster.add_worker(name)
        cluster.wait_for_workers()
        cluster.run(cluster.stages("lost-driver")[0])
        cluster.check_bytes("lost-driver", "documents")


if __name__ == "__main__":
    TRIALS["driver"] = lose_driver
    main(Spark)
