/* Arguments of compiled functions: NumPy arrays, read through the buffer protocol, and numbers.

   A function opens with

       Held held = {0};
       Numbers x;                    an array's entries and how many there are
       Whole to;
       double gamma;
       if (!take(&held, args, count, "d i f", &x, &to, &gamma)) return NULL;

   and ends with give_back(&held).  Letters: d array of double, D one that is written, l of int64, i of int32,
   u of uint32, b of bool; L, I, U, B, W likewise written; f a number, n a whole number.  An array of w has whole
   numbers of 4 or 8 bytes, one of m doubles or bools: their width is told.  Arrays that are written must be contiguous;
   of others a copy is made where they are not. */

#ifndef CVXMDP_ARRAYS_H
#define CVXMDP_ARRAYS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#define MOST_ARRAYS 32

typedef struct { Py_buffer views[MOST_ARRAYS]; void *copies[MOST_ARRAYS]; int count; } Held;
typedef struct { double *at; Py_ssize_t size; } Numbers;
typedef struct { int64_t *at; Py_ssize_t size; } Longs;
typedef struct { int32_t *at; Py_ssize_t size; } Ints;
typedef struct { uint32_t *at; Py_ssize_t size; } Naturals;
typedef struct { uint8_t *at; Py_ssize_t size; } Flags;
typedef struct { void *at; Py_ssize_t size; } Any;
typedef struct { void *at; Py_ssize_t size, width; } Sized;

static void give_back(Held *held)
{
    while (held->count) {
        PyBuffer_Release(&held->views[--held->count]);
        PyMem_Free(held->copies[held->count]);
    }
}

/* Whether a buffer holds what a letter says. */
static int fits(const Py_buffer *view, char letter)
{
    char kind = view->format ? view->format[0] : 'B';
    switch (letter | 32) {
    case 'w': return (view->itemsize == 4 || view->itemsize == 8) && strchr("ilqILQ", kind);
    case 'm': return kind == 'd' || kind == '?';
    case 'd': return kind == 'd';
    case 'l': return view->itemsize == 8 && (kind == 'l' || kind == 'q');
    case 'i': return view->itemsize == 4 && (kind == 'i' || kind == 'l');
    case 'u': return view->itemsize == 4 && (kind == 'I' || kind == 'L');
    case 'b': return view->itemsize == 1;
    }
    return 0;
}

/* Hold an array; NULL and an exception where it is of another kind. */
static void *hold(Held *held, PyObject *object, char letter, Py_ssize_t *size)
{
    int flags = PyBUF_FORMAT | (letter < 'a' ? PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE : PyBUF_STRIDES);
    if (held->count == MOST_ARRAYS) {
        PyErr_SetString(PyExc_SystemError, "too many arrays");
        return NULL;
    }
    Py_buffer *view = &held->views[held->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    held->copies[held->count++] = NULL;
    if (!fits(view, letter)) {
        PyErr_Format(PyExc_TypeError, "an array of kind '%c' was expected, not '%s'", letter, view->format);
        return NULL;
    }
    *size = view->len / view->itemsize;
    if (letter < 'a' || PyBuffer_IsContiguous(view, 'C')) return view->buf;
    void *copy = held->copies[held->count - 1] = PyMem_Malloc(view->len);
    if (copy == NULL) PyErr_NoMemory();
    else if (PyBuffer_ToContiguous(copy, view, view->len, 'C') < 0) return NULL;
    return copy;
}

static int take(Held *held, PyObject *const *args, Py_ssize_t count, const char *letters, ...)
{
    va_list out;
    va_start(out, letters);
    Py_ssize_t k = 0;
    for (const char *letter = letters; *letter; letter++) {
        if (*letter == ' ') continue;
        if (k == count) {
            PyErr_Format(PyExc_TypeError, "%zd arguments were given, more are expected", count);
            goto failed;
        }
        PyObject *given = args[k++];
        if (*letter == 'f') {
            double x = PyFloat_AsDouble(given);
            if (x == -1.0 && PyErr_Occurred()) goto failed;
            *va_arg(out, double *) = x;
        } else if (*letter == 'n') {
            Py_ssize_t x = PyNumber_AsSsize_t(given, PyExc_OverflowError);
            if (x == -1 && PyErr_Occurred()) goto failed;
            *va_arg(out, Py_ssize_t *) = x;
        } else {
            Any *array = va_arg(out, Any *);
            array->at = hold(held, given, *letter, &array->size);
            if (array->at == NULL && PyErr_Occurred()) goto failed;
            if ((*letter | 32) == 'w' || *letter == 'm')
                ((Sized *)array)->width = held->views[held->count - 1].itemsize;
        }
    }
    va_end(out);
    if (k == count) return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments were given, %zd are expected", count, k);
    give_back(held);
    return 0;
failed:
    va_end(out);
    give_back(held);
    return 0;
}

#endif
