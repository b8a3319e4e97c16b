local task_prefix = string.sub(task, 1, #task - #id)
