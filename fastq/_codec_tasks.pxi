# Many messages at once, and running tasks made of messages, without a line of Python for each: a child does this for
# each of its tasks.


cdef extern from *:
    """
    #define FASTQ_OFFSET(descriptor) (((PyMemberDescrObject *)(descriptor))->d_member->offset)
    """
    Py_ssize_t FASTQ_OFFSET(object descriptor)
    object PyType_GenericAlloc(PyTypeObject *made, Py_ssize_t items)


def decode_task_messages(list data not None):
    """Return the messages and the set of their types; raise InvalidMessageError if asynq would refuse any of them."""
    cdef list messages = []
    cdef set types = set()
    cdef bytes one
    cdef TaskMessage msg
    cdef PyObject *last = NULL
    for one in data:
        if one is None:
            raise TypeError("a message is bytes, not None")
        msg = decode(PyBytes_AS_STRING(one), PyBytes_GET_SIZE(one))
        messages.append(msg)
        if msg.slots[TYPE] != last:  # most messages share one object
            last = msg.slots[TYPE]
            types.add(<object> last)
    return messages, types


# The last two are None until somebody sets them. To ask for a slot that was never set costs an AttributeError.
cdef tuple TASK_FIELDS = (
    "type", "payload", "headers", "options", "_has_payload", "_message", "_context", "_rule", "_limit",
)
cdef enum:
    TASK_FIELD_COUNT = 9
cdef object HAS_PAYLOAD = True
cdef object UNSET = None
cdef object MEMBER_DESCRIPTOR = type(TaskMessage.type)


@cython.final
cdef class TaskMaker:
    """Makes tasks of a Python class whose fields are ``__slots__``; all have the same ``options``.

    The fields are written where the descriptors of the slots say.
    """

    cdef type made
    cdef object options
    cdef Py_ssize_t offsets[TASK_FIELD_COUNT]

    def __init__(self, type made not None, options):
        self.made, self.options = made, options
        for place, name in enumerate(TASK_FIELDS):
            descriptor = getattr(made, name)
            if type(descriptor) is not MEMBER_DESCRIPTOR:
                raise TypeError(f"{name!r} is no slot of {made!r}")
            self.offsets[place] = FASTQ_OFFSET(descriptor)

    def make(self, TaskMessage message not None, context):
        """Return what a call of the class would return."""
        task = PyType_GenericAlloc(<PyTypeObject *> self.made, 0)
        self.put(task, message, context)
        return task

    def make_all(self, list messages not None, list contexts not None):
        """Return a task for each message."""
        cdef list tasks = []
        cdef Py_ssize_t place
        if len(messages) != len(contexts):
            raise ValueError(f"{len(contexts)} contexts for {len(messages)} messages")
        for place in range(len(messages)):
            tasks.append(self.make(messages[place], contexts[place]))
        return tasks

    def fill(self, task, TaskMessage message not None, context):
        """Set the fields of a task of the class, or of one below it."""
        if not isinstance(task, self.made):
            raise TypeError(f"{task!r} is no {self.made!r}")
        self.put(task, message, context)

    cdef void put(self, object task, TaskMessage message, object context) noexcept:
        cdef PyObject **values = [
            message.slots[TYPE], message.slots[PAYLOAD], message.slots[HEADERS], <PyObject *> self.options,
            <PyObject *> HAS_PAYLOAD, <PyObject *> message, <PyObject *> context,
            <PyObject *> UNSET, <PyObject *> UNSET,
        ]
        cdef PyObject **slot
        cdef int place
        for place in range(TASK_FIELD_COUNT):
            slot = <PyObject **> (<char *> <PyObject *> task + self.offsets[place])
            Py_XINCREF(values[place])
            give(slot, values[place])
