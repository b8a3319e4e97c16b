"""The shop of the page about Django passes its tests, and its worker runs what its view enqueues."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of

PAGE = ROOT / "docs" / "django.md"
# What `startproject` and the reader's own apps have.
FILES = {
    "shop/settings.py": """
SECRET_KEY = "of no value"
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = []
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3", "OPTIONS": {"timeout": 60}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
""",
    "shop/urls.py": """
from django.urls import path
from orders import views

urlpatterns = [path("buy", views.buy), path("status/<str:result_id>", views.status)]
""",
    "orders/models.py": """
from django.db import models

class Order(models.Model):
    item = models.CharField(max_length=50)
    is_confirmed = models.BooleanField(default=False)
""",
    "manage.py": """
import os, sys
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
""",
    "buy.py": """
from django.test import Client

answer = Client().get("/buy", {"item": "book"}).json()
print(answer["result"])
""",
    "see.py": """
import sys
from django.test import Client
from orders.tasks import count_orders

result = Client().get(f"/status/{open('result').read().strip()}").json()
print(result["status"], result["value"])
""",
}


def test_the_shop_of_the_page_works(url: str, tmp_path: Path) -> None:
    files = dict(FILES)
    for block in blocks_of(PAGE):
        if found := re.match(r"# (\S+\.py)\n", block.code):
            files[found[1]] = files.get(found[1], "") + block.code.replace("redis://127.0.0.1:6379/0", url)
    assert {"orders/tasks.py", "orders/views.py", "orders/tests.py"} < set(files)
    for name in ("shop/__init__.py", "orders/__init__.py"):
        files[name] = ""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def manage(*words: str, stdin: str = "") -> str:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("FASTQ_", "DJANGO_"))}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, input=stdin, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stderr if words == ("test",) else done.stdout

    assert "Ran 2 tests" in manage("test")
    manage("migrate", "--run-syncdb")
    (tmp_path / "result").write_text(manage("shell", "-v0", stdin=files["buy.py"]).split()[-1])
    manage("fastq", "worker", "--burst", "--concurrency", "1")
    assert manage("shell", "-v0", stdin=files["see.py"]).splitlines()[-1] == "SUCCESSFUL book is confirmed"
