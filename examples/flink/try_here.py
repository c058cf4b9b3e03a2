"""Try out Flink on this machine: a JobManager and three TaskManagers, each on a host of its own."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "clusters"))

from downloads import flink, submission_jar
from hosts import Host
from trial import WORKERS, Engine, main

POOL_PORT = 50000
CONFIG = Path(__file__).resolve().parent / "config.yaml"

# What Flink's bin/ scripts, which its package for Python leaves out, work out from the memory.
TASK_MANAGER = {
    "taskmanager.cpu.cores": "1.0",
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "taskmanager.memory.task.heap.size": "192m",
    "taskmanager.memory.task.off-heap.size": "0",
    "taskmanager.memory.network.min": "64m",
    "taskmanager.memory.network.max": "64m",
    "taskmanager.memory.managed.size": "64m",
}
# Java 17 refuses what Flink does with these by default; bin/ scripts give the same options.
JAVA_OPTIONS = (
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    "--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.text=ALL-UNNAMED",
    "--add-opens=java.base/java.time=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
)
LOGGING = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %-5p %c{1} - %m%n
"""


class Flink(Engine):
    """A standalone cluster; on each worker's host a TaskManager and a pool of Python workers."""

    name = "flink"

    def __init__(self) -> None:
        self.libraries = flink() / "lib"
        self.jar = submission_jar("flink")

    def start_head(self, head: Host) -> None:
        program = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._start_java(head, "-Xmx512m", program)

    def start_worker(self, worker: Host) -> None:
        pool = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
        worker.start(*pool, f"--service_port={POOL_PORT}")
        settings = {**TASK_MANAGER, "taskmanager.host": worker.address}
        options = [
            option for name, value in settings.items() for option in ("-D", f"{name}={value}")
        ]
        program = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self._start_java(worker, "-Xmx320m", program, *options)

    def _start_java(self, host: Host, memory: str, program: str, *options: str) -> None:
        configuration = "/tmp/flink"
        script = 'mkdir -p "$1" && cp "$2" "$1/config.yaml" && echo "$3" > "$1/log4j.properties"'
        host.run("sh", "-c", script, "sh", configuration, str(CONFIG), LOGGING)
        logging = f"-Dlog4j.configurationFile={configuration}/log4j.properties"
        java = ["java", memory, "-XX:+UseSerialGC", *JAVA_OPTIONS, logging]
        classes = ["-classpath", f"{self.libraries}/*"]
        command = [*java, *classes, program, "--configDir", configuration, *options]
        # On a busy machine it gives up after ten seconds; a real one's service manager restarts it.
        host.start("sh", "-c", 'until "$0" "$@"; do sleep 1; done', *command)

    def num_workers(self, head: Host) -> int:
        overview = head.run("curl", "--silent", "http://head:8081/overview").stdout
        if not overview.startswith("{"):
            return 0
        return json.loads(overview)["taskmanagers"]

    def has_work(self, worker: Host) -> bool:
        return worker.has_process("SdkHarness")

    def flags(self) -> list[str]:
        return [
            "--runner=FlinkRunner",
            "--flink_master=head:8081",
            "--flink_submit_uber_jar",
            f"--flink_job_server_jar={self.jar}",
            f"--parallelism={len(WORKERS) - 1}",  # one host can be lost
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{POOL_PORT}",
        ]


if __name__ == "__main__":
    main(Flink)
