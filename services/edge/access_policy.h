// Who may ask the edge. With keys: who has one. Without: programs of this machine, the edge's own
// page, and web pages that edge.cors_origins names. A page of a stranger may have its own name lead
// to this machine (DNS rebinding) and is then no stranger to its browser: without keys the name
// that a request was sent to must be one of this machine, or of edge.allowed_hosts. Knows no route.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/config/sections.h"
#include "services/edge/api_keys.h"
#include "services/edge/http_error.h"
#include "services/edge/http_types.h"

namespace foretoken::edge {

// Whether only this machine can reach an address of edge.host or metrics.listen.
bool is_loopback(const std::string& host);

class AccessPolicy {
 public:
  // `metrics_host`: of metrics.listen; "" = none. Throws FatalError for keys that cannot be read,
  // and for an address beyond this machine without any.
  explicit AccessPolicy(const EdgeSection& section, const std::string& metrics_host = "");

  // Why a request is refused. `is_open`: what it asks for needs no key.
  std::optional<HttpError> refusal(const HttpRequest& request, bool is_open) const;
  // The same of a request at metrics.listen: only where other machines reach it, a key is asked
  // for.
  std::optional<HttpError> metrics_refusal(const HttpRequest& request) const;
  // May see what needs a key.
  bool knows(const HttpRequest& request) const;
  std::string tenant_of(const HttpRequest& request) const;
  // A web page of this origin may read answers.
  bool takes_origin(std::string_view origin) const;

 private:
  // Where no key is asked for.
  std::optional<HttpError> refusal_of_page(const HttpRequest& request, bool is_open) const;
  bool takes_host(std::string_view host) const;
  // Of this machine, a numeric address or in edge.allowed_hosts by its name.
  bool is_named(std::string_view host) const;
  // Of the first of its keys that is listed.
  std::optional<std::string> name_of(const HttpRequest& request) const;

  const EdgeSection section_;
  const ApiKeys keys_;
  const bool metrics_need_a_key_;
};

}  // namespace foretoken::edge
