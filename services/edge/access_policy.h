// Who may ask the edge. With keys: who has one. Without: programs of this machine, and web pages
// that edge.cors_origins names. A page of a stranger may have its own name lead to this machine
// (DNS rebinding) and is then no stranger to its browser: without keys the name that a request was
// sent to must be one of this machine, or of edge.allowed_hosts. Knows no route.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/config/sections.h"
#include "services/edge/api_keys.h"
#include "services/edge/http_error.h"
#include "services/edge/http_types.h"

namespace foretoken::edge {

// Whether only this machine can reach an address of edge.host.
bool is_loopback(const std::string& host);

class AccessPolicy {
 public:
  // Throws FatalError for keys that cannot be read, and for an address beyond this machine without
  // any.
  explicit AccessPolicy(const EdgeSection& section);

  // Why a request is refused. `is_open`: what it asks for needs no key.
  std::optional<HttpError> refusal(const HttpRequest& request, bool is_open) const;
  // May see what needs a key.
  bool knows(const HttpRequest& request) const;
  std::string tenant_of(const HttpRequest& request) const;
  // A web page of this origin may read answers.
  bool takes_origin(std::string_view origin) const;

 private:
  bool takes_host(std::string_view host) const;

  const EdgeSection section_;
  const ApiKeys keys_;
};

}  // namespace foretoken::edge
