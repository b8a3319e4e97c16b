import uuid


def new_task_id():
    return str(uuid.uuid4())


def new_task_ids(n):
    return [str(uuid.uuid4()) for _ in range(n)]
