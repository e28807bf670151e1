// FORETOKEN_CHECK: for what only our own mistake can make false. Always on, release included:
// prints the place and the condition, then aborts, so that a broken invariant never becomes wrong
// text. Never use it on outside input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define FORETOKEN_CHECK(condition, ...)                                                      \
  do {                                                                                       \
    if (!(condition)) [[unlikely]] {                                                         \
      std::fprintf(stderr, "%s:%d: internal error: %s %s\n", __FILE__, __LINE__, #condition, \
                   "" __VA_ARGS__);                                                          \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
