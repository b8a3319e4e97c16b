"""The tests on uvloop: ``pytest -p tests.on_uvloop tests/e2e tests/server``, servers as whole processes too."""

import asyncio
import os

import uvloop

os.environ["LOOP_OF_FASTQ_E2E"] = "uvloop"
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
