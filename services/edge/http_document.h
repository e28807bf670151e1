// docs/reference/http.md: every endpoint that takes a body, and what happens to each field.
#pragma once

#include <string>

namespace foretoken::edge {

std::string http_document();

}  // namespace foretoken::edge
