// One TokenMemory for each tenant, and the places that all of them may take together. A look-up
// of one tenant touches nothing of another: neither an answer nor the number of places looked at
// depends on what others have written. Only how much is remembered does, since the places are
// shared: a new or growing tenant takes those of the tenant that was used longest ago and has
// no open document.
//
// Salts are compared whole. It must not know what a sequence is, and has no statistics of a single
// tenant. It reads no clock and no file. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>

#include "common/base/ids.h"
#include "common/memory/token_memory.h"

namespace foretoken {

using TenantSalt = std::uint64_t;

struct TenantMemoriesOptions {
  std::uint64_t n_places = std::uint64_t{8} << 20;  // of all tenants
  double tenant_share = 0.25;                       // the most one may have of them
};

struct TenantMemoriesStats {
  std::uint64_t n_tenants = 0;
  std::uint64_t n_tokens = 0;   // remembered
  std::uint64_t n_places = 0;   // reserved for them
  std::uint64_t n_evicted = 0;  // tokens forgotten, ever
  std::uint64_t n_dropped = 0;  // tokens never remembered: there was no place for their tenant
  std::uint64_t size_bytes = 0;
};

class TenantMemories {
 public:
  explicit TenantMemories(const TenantMemoriesOptions& options);

  // A text of one tenant. It must be closed. Its tenant may be forgotten in between; then it
  // begins anew with its next token.
  class Document {
    friend class TenantMemories;
    TenantSalt salt_ = 0;
    std::uint64_t generation_ = 0;  // of the tenant's memory that it is written to; 0 = none
    TokenMemory::Document written_;
  };

  Document open(TenantSalt salt);
  // Where there is no place for the tenant at all the tokens are dropped.
  void append(Document& document, std::span<const TokenId> tokens);
  void close(Document& document);

  void recall(TenantSalt salt,
              std::span<const TokenId> query,
              const RecallRules& rules,
              Recollection& recollection);

  // The tenant and all it has written.
  void forget(TenantSalt salt);

  std::uint64_t most_places() const { return most_places_; }  // of one tenant
  TenantMemoriesStats stats() const;

 private:
  struct Tenant {
    TenantSalt salt = 0;
    std::uint64_t generation = 0;
    std::uint32_t n_open = 0;
    TokenMemory memory{TokenMemory::kLeastPlaces};
  };
  using Tenants = std::list<Tenant>;

  Tenant* used(TenantSalt salt);
  Tenant* used_or_new(TenantSalt salt);
  Tenant* tenant_of(Document& document);
  bool make_room(std::uint64_t n_places);
  void grow(Tenant& tenant);
  void drop(Tenants::iterator tenant);

  TenantMemoriesOptions options_;
  std::uint64_t most_places_;
  Tenants tenants_;  // the one used last is in front
  std::unordered_map<TenantSalt, Tenants::iterator> by_salt_;
  std::uint64_t n_idle_places_ = 0;  // of tenants without an open document
  std::uint64_t n_reserved_ = 0;
  std::uint64_t n_generations_ = 0;
  std::uint64_t n_evicted_ = 0;  // with tenants that are gone
  std::uint64_t n_dropped_ = 0;
};

}  // namespace foretoken
