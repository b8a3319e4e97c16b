import os
from typing import Any

SECRET_KEY = "of no value"
USE_TZ = True
LOGGING_CONFIG = None
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "fastq.contrib.django",
    "tests.contrib.django.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
STATIC_URL = "static/"
ROOT_URLCONF = "tests.contrib.django.shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, dict[str, Any]] = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
    "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}
if "SHOP_PG" in os.environ:
    server = {"HOST": "127.0.0.1", "PORT": os.environ["SHOP_PG"], "NAME": "postgres", "USER": "app"}
    DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": 600, **server}}
TASKS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "fastq.contrib.django.FastqBackend", "QUEUES": ["default", "mail"]}
}
if "SHOP_REDIS" in os.environ:
    TASKS["default"]["OPTIONS"] = {"redis": os.environ["SHOP_REDIS"]}
