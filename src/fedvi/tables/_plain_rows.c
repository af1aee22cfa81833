/* Plain rows of text to numbers and codes, which is what a reader of CSV files does most of its time.

   A block is plain if all its lines hold as many values as there are columns, quotation marks stand around whole values
   and within none, and few words differ. Of other blocks nothing is said but that they are not plain, and a parser that
   knows more takes over.

       number   the nearest double of what is written like -12.345 or 1.2e-5, with up to 19 digits;
                of anything else, an odd word, a NaN that holds the word's code in its lowest bits
       text     the code of a word; words get codes in the order in which they are met

   What odd words mean is not decided here: nothing, a number in another notation, or a mistake. Nothing is kept between
   calls. No loop runs over the end of a block, because its last byte is the end of a line, at which every loop stops. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MOST_DIGITS = 19, MOST_WORDS = 4096 };
enum { NUMBER = 'n', TEXT = 't', UNUSED = '-' };

static const uint64_t ODD = UINT64_C(0x7FF8000000000000); /* a NaN, whose lowest bits are free */

typedef struct {
    const uint8_t *start;
    size_t size;
    uint64_t last; /* its last 8 bytes */
    uint64_t hash;
} Word;

typedef struct {
    int count;
    int bits;        /* of the number of a slot; there is room for half as many words as slots */
    uint16_t *slots; /* a word's code + 1, or 0 if empty */
    Word *words;
} Words;

typedef struct {
    char kind;
    union {
        uint64_t *codes;
        double *numbers;
    };
    Words known;
} Column;

/* Numbers. */

static const double TENS[] = { /* all that are doubles */
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22};

static const uint64_t FIVES[] = { /* all below 2^63 */
    UINT64_C(1), UINT64_C(5), UINT64_C(25), UINT64_C(125), UINT64_C(625), UINT64_C(3125), UINT64_C(15625),
    UINT64_C(78125), UINT64_C(390625), UINT64_C(1953125), UINT64_C(9765625), UINT64_C(48828125),
    UINT64_C(244140625), UINT64_C(1220703125), UINT64_C(6103515625), UINT64_C(30517578125), UINT64_C(152587890625),
    UINT64_C(762939453125), UINT64_C(3814697265625), UINT64_C(19073486328125), UINT64_C(95367431640625),
    UINT64_C(476837158203125), UINT64_C(2384185791015625), UINT64_C(11920928955078125), UINT64_C(59604644775390625),
    UINT64_C(298023223876953125), UINT64_C(1490116119384765625), UINT64_C(7450580596923828125)};

enum { MOST_TENS = 22, MOST_FIVES = 27 };

/* Set *value to the double nearest to digits * 10^power, ties to even; return whether that was possible. */
static int nearest(uint64_t digits, int power, double *value)
{
    if (FLT_EVAL_METHOD == 0 && digits <= UINT64_C(1) << 53 && -MOST_TENS <= power && power <= MOST_TENS) {
        *value = power < 0 ? (double)digits / TENS[-power] : (double)digits * TENS[power]; /* which round once */
        return 1;
    }
#ifdef __SIZEOF_INT128__
    if (digits > 0 && -MOST_FIVES <= power && power <= 0) {
        /* quotient = digits * 2^shift / 5^-power, which is at least 2^127 / 2^63; the remainder breaks ties */
        int shift = 64 + __builtin_clzll(digits);
        unsigned __int128 dividend = (unsigned __int128)digits << shift, quotient = dividend / FIVES[-power];
        int lost = 128 - __builtin_clzll((uint64_t)(quotient >> 64)) - 53; /* bits that a double has no room for */
        uint64_t kept = (uint64_t)(quotient >> lost);
        unsigned __int128 rest = quotient - ((unsigned __int128)kept << lost), half = (unsigned __int128)1 << (lost - 1);
        int above = quotient * FIVES[-power] != dividend;
        kept += rest > half || (rest == half && (above || kept % 2));
        *value = ldexp((double)kept, lost - shift + power);
        return 1;
    }
#endif
    return 0;
}

/* Add the digits at *at to a number, and go to their end; return how many there are. */
static ptrdiff_t read_digits(const uint8_t **at, uint64_t *digits)
{
    const uint8_t *start = *at;
    for (; (uint8_t)(**at - '0') < 10; ++*at) *digits = 10 * *digits + (uint64_t)(**at - '0');
    return *at - start;
}

/* Read a number between blanks; return where it ends, or where it starts if it is none, or an odd one. */
static const uint8_t *read_number(const uint8_t *start, double *value)
{
    const uint8_t *at = start;
    uint64_t digits = 0, exponent = 0;
    ptrdiff_t size, decimals = 0;
    int negative, small = 0;

    while (*at == ' ') at++;
    negative = *at == '-';
    at += negative;
    size = read_digits(&at, &digits);
    if (*at == '.') {
        at++;
        decimals = read_digits(&at, &digits);
    }
    if (size + decimals == 0 || size + decimals > MOST_DIGITS) return start;
    if (*at == 'e' || *at == 'E') {
        at++;
        small = *at == '-';
        at += small || *at == '+';
        size = read_digits(&at, &exponent);
        if (size == 0 || size > 3) return start;
    }
    if (!nearest(digits, (int)(small ? -(ptrdiff_t)exponent : (ptrdiff_t)exponent) - (int)decimals, value)) return start;
    if (negative) *value = -*value;
    while (*at == ' ') at++;
    return at;
}

/* Words. */

/* Return where the search for a word begins. */
static size_t first_slot(const Words *known, uint64_t hash) { return hash >> (64 - known->bits); }

/* Return the slot after another one. */
static size_t next_slot(const Words *known, size_t slot) { return (slot + 1) & (((size_t)1 << known->bits) - 1); }

static void put(Words *known, int code)
{
    size_t slot = first_slot(known, known->words[code].hash);
    while (known->slots[slot] != 0) slot = next_slot(known, slot);
    known->slots[slot] = (uint16_t)(code + 1);
}

/* Double the room for words; return whether there was memory. */
static int grow(Words *known)
{
    int bits = known->bits > 0 ? known->bits + 1 : 5;
    uint16_t *slots = PyMem_RawCalloc((size_t)1 << bits, sizeof(uint16_t));
    Word *words = PyMem_RawRealloc(known->words, sizeof(Word) << (bits - 1));

    if (words != NULL) known->words = words;
    if (slots == NULL || words == NULL) {
        PyMem_RawFree(slots);
        return 0;
    }
    PyMem_RawFree(known->slots);
    known->slots = slots;
    known->bits = bits;
    for (int code = 0; code < known->count; code++) put(known, code);
    return 1;
}

/* Return the code of a word, or -1 if there are too many, or no memory. */
static int code_of(Words *known, const uint8_t *start, size_t size)
{
    uint64_t last = 0, hash = size;

    for (size_t i = 0; i < size; i++) {
        last = last << 8 | start[i];
        if (i % 8 == 7) hash = (hash ^ last) * UINT64_C(0x9E3779B97F4A7C15);
    }
    hash = (hash ^ last) * UINT64_C(0x9E3779B97F4A7C15);
    if (known->count > 0) {
        for (size_t slot = first_slot(known, hash); known->slots[slot] != 0; slot = next_slot(known, slot)) {
            int code = known->slots[slot] - 1;
            const Word *word = &known->words[code];
            if (word->last == last && word->size == size && (size <= 8 || memcmp(word->start, start, size) == 0))
                return code;
        }
    }
    if (known->count == MOST_WORDS) return -1;
    if (2 * known->count == (known->bits > 0 ? 1 << known->bits : 0) && !grow(known)) return -1;
    known->words[known->count] = (Word){start, size, last, hash};
    put(known, known->count);
    return known->count++;
}

/* Rows. */

/* Read the value at `at` into a row of a column; return where it ends, or NULL if it is not plain. */
static const uint8_t *read_value(Column *column, Py_ssize_t row, const uint8_t *at, const uint8_t stops[256])
{
    int quoted = *at == '"', code;
    const uint8_t *start = at + quoted, *end;

    if (column->kind == NUMBER) {
        double number;
        end = read_number(start, &number);
        if (end != start && (quoted ? *end == '"' && stops[end[1]] : stops[*end])) {
            column->numbers[row] = number;
            return end + quoted;
        }
    }
    end = start;
    if (quoted) {
        while (*end != '"' && *end != '\n' && *end != '\r') end++;
        if (*end != '"' || !stops[end[1]]) return NULL;
    } else {
        while (!stops[*end]) end++;
    }
    if (column->kind != UNUSED) {
        code = code_of(&column->known, start, (size_t)(end - start));
        if (code < 0) return NULL;
        column->codes[row] = column->kind == TEXT ? (uint64_t)code : ODD | (uint64_t)code;
    }
    return end + quoted;
}

/* Read all rows; return how many there are, or -1 if the block is not plain. */
static Py_ssize_t read_rows(Column *columns, Py_ssize_t width, const uint8_t *at, const uint8_t *end, uint8_t delimiter)
{
    uint8_t stops[256] = {0};
    Py_ssize_t rows = 0;

    stops[delimiter] = stops['\n'] = stops['\r'] = 1;
    while (at < end) {
        int empty = *at == '\n' || (*at == '\r' && at[1] == '\n');
        for (Py_ssize_t i = 0; i < width && !empty; i++) {
            if (i > 0 && *at++ != delimiter) return -1;
            at = read_value(&columns[i], rows, at, stops);
            if (at == NULL) return -1;
        }
        rows += !empty;
        at += *at == '\r';
        if (*at++ != '\n') return -1;
    }
    return rows;
}

static Py_ssize_t count_lines(const uint8_t *at, const uint8_t *end)
{
    Py_ssize_t lines = 0;
    while (at < end) { /* so few at once that a byte holds their number, which lets compilers use wide registers */
        const uint8_t *stop = end - at > 255 ? at + 255 : end;
        uint8_t some = 0;
        for (; at < stop; at++) some += *at == '\n';
        lines += some;
    }
    return lines;
}

/* For Python. Functions that return NULL have set an error. */

static PyObject *list_of(const Words *known)
{
    PyObject *list = PyList_New(known->count);
    for (int code = 0; code < known->count && list != NULL; code++) {
        const Word *word = &known->words[code];
        PyObject *bytes = PyBytes_FromStringAndSize((const char *)word->start, (Py_ssize_t)word->size);
        if (bytes == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, code, bytes);
    }
    return list;
}

/* Put a bytearray for so many rows into every column and into a list, which is returned. */
static PyObject *new_buffers(Column *columns, const char *kinds, Py_ssize_t width, Py_ssize_t rows)
{
    PyObject *buffers = PyList_New(width);
    for (Py_ssize_t i = 0; i < width && buffers != NULL; i++) {
        PyObject *buffer = PyByteArray_FromStringAndSize(NULL, kinds[i] == UNUSED ? 0 : 8 * rows);
        if (buffer == NULL) {
            Py_CLEAR(buffers);
        } else {
            columns[i].kind = kinds[i];
            columns[i].codes = (uint64_t *)PyByteArray_AS_STRING(buffer);
            PyList_SET_ITEM(buffers, i, buffer);
        }
    }
    return buffers;
}

static PyObject *parse_into(Column *columns, const Py_buffer *block, uint8_t delimiter, const Py_buffer *kinds)
{
    const uint8_t *start = block->buf, *end = start + block->len;
    Py_ssize_t rows, width = kinds->len;
    PyObject *buffers, *words;

    Py_BEGIN_ALLOW_THREADS
    rows = count_lines(start, end);
    Py_END_ALLOW_THREADS
    buffers = new_buffers(columns, kinds->buf, width, rows);
    if (buffers == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rows = read_rows(columns, width, start, end, delimiter);
    Py_END_ALLOW_THREADS
    if (rows < 0) {
        Py_DECREF(buffers);
        Py_RETURN_NONE;
    }
    words = PyList_New(width);
    for (Py_ssize_t i = 0; i < width && words != NULL; i++) {
        PyObject *list = list_of(&columns[i].known);
        if (list == NULL) Py_CLEAR(words);
        else PyList_SET_ITEM(words, i, list);
    }
    if (words == NULL) {
        Py_DECREF(buffers);
        return NULL;
    }
    return Py_BuildValue("nNN", rows, buffers, words);
}

static PyObject *parse_block(const Py_buffer *block, uint8_t delimiter, const Py_buffer *kinds)
{
    Column *columns = PyMem_RawCalloc((size_t)kinds->len, sizeof(Column));
    PyObject *found;

    if (columns == NULL) return PyErr_NoMemory();
    found = parse_into(columns, block, delimiter, kinds);
    for (Py_ssize_t i = 0; i < kinds->len; i++) {
        PyMem_RawFree(columns[i].known.slots);
        PyMem_RawFree(columns[i].known.words);
    }
    PyMem_RawFree(columns);
    return found;
}

/* Return whether nobody can change what a buffer holds: it is that of bytes, or of a view of bytes. */
static int is_of_bytes(const Py_buffer *block)
{
    PyObject *owner = PyMemoryView_Check(block->obj) ? PyMemoryView_GET_BASE(block->obj) : block->obj;
    return owner != NULL && PyBytes_Check(owner);
}

static PyObject *parse(PyObject *module, PyObject *arguments)
{
    Py_buffer block, kinds;
    char delimiter;
    PyObject *found = NULL;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*cy*:parse", &block, &delimiter, &kinds)) return NULL;
    if (strchr(",;\t|", delimiter) == NULL || delimiter == '\0') {
        PyErr_SetString(PyExc_ValueError, "Expected a delimiter among , ; | and tabs.");
    } else if (kinds.len == 0) {
        PyErr_SetString(PyExc_ValueError, "Expected at least one column.");
    } else if (!is_of_bytes(&block)) {
        PyErr_SetString(PyExc_ValueError, "Expected a block of bytes, which nobody can change meanwhile.");
    } else if (block.len == 0 || ((const char *)block.buf)[block.len - 1] != '\n') {
        PyErr_SetString(PyExc_ValueError, "Expected a block that ends with the end of a line.");
    } else {
        found = parse_block(&block, (uint8_t)delimiter, &kinds);
    }
    PyBuffer_Release(&block);
    PyBuffer_Release(&kinds);
    return found;
}

static PyMethodDef METHODS[] = {
    {"parse", parse, METH_VARARGS,
     "parse(block, delimiter, kinds)\n--\n\n"
     "Return the number of rows, a bytearray per column and its words; or None if the block is not plain.\n\n"
     "kinds: a letter for every column: n for numbers, t for text, - for what is not wanted."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "_plain_rows", .m_doc = "Plain rows of text to numbers and codes.", .m_methods = METHODS};

PyMODINIT_FUNC PyInit__plain_rows(void) { return PyModuleDef_Init(&MODULE); }
