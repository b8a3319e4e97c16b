"""A search for the longest registered pattern that is a prefix of a task's type, in one pass over the type.

A pattern that ends in NUL is a full name: it matches exactly the text before the NUL, and wins over the prefix with the
same text.

The index is a radix tree over the patterns' UTF-8 bytes, flat in memory: nodes in one array, all edges in one hash
table. So the cost depends neither on the number of patterns nor on their nesting, and nothing recurses.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL

cdef enum:
    NONE = 0xFFFFFFFF
    MOST_NODES = 1 << 30

cdef struct Node:
    const uint8_t *label  # a slice of a pattern's bytes, which self.owners keeps alive
    Py_ssize_t length
    uint32_t pattern  # index in self.patterns, or NONE
    uint32_t name  # index in self.patterns of the full name that ends here, or NONE

cdef struct Edge:
    uint64_t key  # parent node and first byte of the label, + 1; 0 for an unused entry
    uint32_t child


cdef inline uint64_t edge_key(uint32_t parent, uint8_t first) noexcept:
    return ((<uint64_t> parent << 8) | first) + 1


@cython.final
cdef class PatternIndex:
    """An index of patterns; thread-safe only by the GIL, which ``add`` and ``find`` never release."""

    cdef Node *nodes
    cdef uint32_t node_count
    cdef uint32_t node_room
    cdef Edge *edges
    cdef uint64_t edge_mask
    cdef list patterns
    cdef list owners
    cdef set known

    def __cinit__(self):
        self.patterns = []
        self.owners = []
        self.known = set()
        self.edge_mask = 15
        self.edges = <Edge *> PyMem_Calloc(self.edge_mask + 1, sizeof(Edge))
        if self.edges == NULL:
            raise MemoryError
        self.reserve_nodes()
        self.new_node(<const uint8_t *> "", 0)

    def __dealloc__(self):
        PyMem_Free(self.nodes)
        PyMem_Free(self.edges)

    def __len__(self):
        return len(self.patterns)

    def __contains__(self, pattern):
        return pattern in self.known

    def __iter__(self):
        return iter(self.patterns)

    def add(self, pattern):
        """Add a pattern; ``ValueError`` if it exists already or has no UTF-8 form (a lone surrogate)."""
        if pattern in self.known:
            raise ValueError(f"pattern {pattern!r} is already registered")
        cdef bytes owner = pattern.encode()
        # Steps that can fail come before the tree is changed: a half-added pattern would corrupt it.
        self.reserve_nodes()
        self.reserve_edges()
        self.owners.append(owner)
        self.patterns.append(pattern)
        self.known.add(pattern)
        cdef uint32_t number = len(self.patterns) - 1
        cdef bint is_name = owner.endswith(b"\0")
        self.insert(<const uint8_t *> PyBytes_AS_STRING(owner), PyBytes_GET_SIZE(owner) - is_name, number, is_name)

    def find(self, task_type):
        """Return the longest pattern with which ``task_type`` (text or its UTF-8 bytes) begins, else ``None``."""
        cdef Py_ssize_t steps = 0
        cdef uint32_t found = self.search(task_type, &steps)
        return None if found == NONE else self.patterns[found]

    def steps(self, task_type):
        """Return how many nodes ``find`` visits: at most the type's bytes + 1, whatever patterns there are."""
        cdef Py_ssize_t steps = 0
        self.search(task_type, &steps)
        return steps

    cdef uint32_t search(self, object task_type, Py_ssize_t *steps) except? 0xFFFFFFFE:
        cdef const uint8_t *text
        cdef Py_ssize_t size = 0
        if isinstance(task_type, bytes):
            text = <const uint8_t *> PyBytes_AS_STRING(task_type)
            size = PyBytes_GET_SIZE(task_type)
        elif isinstance(task_type, str):
            text = <const uint8_t *> PyUnicode_AsUTF8AndSize(task_type, &size)
        else:
            raise TypeError(f"a task type is str or bytes, not {type(task_type).__name__}")
        return self.walk(text, size, steps)

    cdef uint32_t walk(self, const uint8_t *text, Py_ssize_t size, Py_ssize_t *steps) noexcept:
        """Follow the text down the tree; the last wholly matched node with a pattern wins."""
        cdef uint32_t node = 0, found = NONE
        cdef Node *at
        while True:
            at = &self.nodes[node]
            steps[0] += 1
            # The label is compared only if the text has as many bytes left.
            if at.length > size or memcmp(at.label, text, at.length) != 0:
                return found
            text += at.length
            size -= at.length
            if at.pattern != NONE:
                found = at.pattern
            if size == 0:
                return found if at.name == NONE else at.name
            node = self.child(node, text[0])
            if node == NONE:
                return found

    cdef uint32_t child(self, uint32_t parent, uint8_t first) noexcept:
        cdef Edge *edge = self.place(edge_key(parent, first))
        return edge.child if edge.key else <uint32_t> NONE

    cdef Edge *place(self, uint64_t key) noexcept:
        """Return the key's edge, or an unused entry for it; at least half of the table is unused."""
        cdef uint64_t at = (key * <uint64_t> 0x9E3779B97F4A7C15) >> 20
        while True:
            at &= self.edge_mask
            if self.edges[at].key == key or self.edges[at].key == 0:
                return &self.edges[at]
            at += 1

    cdef void link(self, uint32_t parent, uint32_t child) noexcept:
        cdef uint64_t key = edge_key(parent, self.nodes[child].label[0])
        cdef Edge *edge = self.place(key)
        edge.key = key
        edge.child = child

    cdef void insert(self, const uint8_t *text, Py_ssize_t size, uint32_t pattern, bint is_name) noexcept:
        """Descend as far as the text matches, split the node where it differs, and append the rest."""
        cdef uint32_t node = 0, parent
        cdef Py_ssize_t same
        while size:
            parent = node
            node = self.child(parent, text[0])
            if node == NONE:
                node = self.new_node(text, size)
                self.link(parent, node)
                break
            same = 1
            while same < size and same < self.nodes[node].length and text[same] == self.nodes[node].label[same]:
                same += 1
            if same < self.nodes[node].length:
                node = self.split(parent, node, same)
            text += same
            size -= same
        if is_name:
            self.nodes[node].name = pattern
        else:
            self.nodes[node].pattern = pattern

    cdef uint32_t split(self, uint32_t parent, uint32_t lower, Py_ssize_t length) noexcept:
        """Put a new node above ``lower``, and move the first ``length`` bytes of the label of ``lower`` to it."""
        cdef uint32_t upper = self.new_node(self.nodes[lower].label, length)
        self.nodes[lower].label += length
        self.nodes[lower].length -= length
        self.link(parent, upper)
        self.link(upper, lower)
        return upper

    cdef uint32_t new_node(self, const uint8_t *label, Py_ssize_t length) noexcept:
        self.nodes[self.node_count] = Node(label, length, NONE, NONE)
        self.node_count += 1
        return self.node_count - 1

    cdef int reserve_nodes(self) except -1:
        """Make space for two nodes, the most that a pattern adds."""
        if self.node_count + 2 <= self.node_room:
            return 0
        cdef uint32_t room = max(16, 2 * self.node_room)
        if room > MOST_NODES:
            raise MemoryError
        cdef Node *nodes = <Node *> PyMem_Realloc(self.nodes, room * sizeof(Node))
        if nodes == NULL:
            raise MemoryError
        self.nodes = nodes
        self.node_room = room
        return 0

    cdef int reserve_edges(self) except -1:
        """Keep half of the table unused; every node except the root has one edge."""
        if 2 * (<uint64_t> self.node_count + 2) <= self.edge_mask + 1:
            return 0
        cdef Edge *old = self.edges
        cdef uint64_t old_size = self.edge_mask + 1, at
        cdef Edge *edges = <Edge *> PyMem_Calloc(2 * old_size, sizeof(Edge))
        if edges == NULL:
            raise MemoryError
        self.edges = edges
        self.edge_mask = 2 * old_size - 1
        for at in range(old_size):
            if old[at].key:
                self.place(old[at].key)[0] = old[at]
        PyMem_Free(old)
        return 0
