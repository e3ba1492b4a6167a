"""Ray with a service, as its pods start it: `served.py DASHBOARD_PORT SERVE_PORT` runs until standard input ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from infra.kubernetes.service_pod import authorized

authorized.TOKEN = Path(os.environ["SERVE_TOKEN_FILE"])
middlewares = authorized.middlewares


def main() -> None:
    import ray
    from ray import serve
    from starlette.requests import Request

    @serve.deployment
    class Echo:
        async def __call__(self, request: Request) -> dict[str, dict[str, str]]:
            return {"of-a-replica": dict(request.headers)}

    context = ray.init(num_cpus=2, dashboard_host="127.0.0.1", dashboard_port=int(sys.argv[1]))
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
    serve.run(Echo.bind())
    print(f"SERVED {context.dashboard_url}", flush=True)
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
