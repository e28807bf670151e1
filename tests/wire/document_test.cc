// The generated pages are the listing's own words. FORETOKEN_UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include "common/wire/client_codec.h"
#include "tests/message_text/describe.h"
#include "tests/support/generated_page.h"

namespace foretoken::wire {
namespace {

TEST(Document, MessagesPageIsTheListing) {
  test::expect_page("docs/reference/messages.md", document());
}
TEST(Document, ClientPageIsTheListing) {
  test::expect_page("docs/reference/client.md", client_document());
}
TEST(Document, TypesOfThePythonClientAreTheListing) {
  test::expect_page("clients/python/foretoken/messages.py", python_types());
}

}  // namespace
}  // namespace foretoken::wire
