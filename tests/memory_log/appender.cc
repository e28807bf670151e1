// memory_log_appender FOLDER FIRST: writes records from number FIRST on, without end, and says on
// standard output, a byte each, that a hundred more are with the operating system.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "common/memory_log/log_writer.h"
#include "tests/memory_log/written_texts.h"

int main(int argc, char** argv) {
  using namespace foretoken;
  if (argc != 3) return 2;
  auto folder = LogFolder::open({.folder = argv[1],
                                 .vocabulary = 5,
                                 .n_ids = kWrittenIds,
                                 .max_tokens = 1 << 30,
                                 .max_tenant_tokens = 1 << 30});
  if (!folder.ok()) return std::fprintf(stderr, "%s\n", folder.error().message.c_str()), 1;
  if (const auto read = folder->read_back([](std::uint64_t, const LogRecord&) {}); !read.ok())
    return std::fprintf(stderr, "%s\n", read.error().message.c_str()), 1;
  LogWriter writer(std::move(*folder));
  for (std::uint64_t number = std::strtoull(argv[2], nullptr, 10);; ++number) {
    const WrittenRecord record = written_record(number);
    writer.append(record.salt, {.document = record.document, .tokens = record.tokens});
    if (number % 100 != 99) continue;
    writer.flush();
    if (::write(STDOUT_FILENO, ".", 1) != 1) return 1;
  }
}
