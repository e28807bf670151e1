#include "common/memory/tenant_memories.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/check.h"

namespace foretoken {
namespace {

std::uint64_t most_places_of(const TenantMemoriesOptions& options) {
  const auto share = static_cast<std::uint64_t>(static_cast<double>(options.n_places) *
                                                std::clamp(options.tenant_share, 0.0, 1.0));
  return std::clamp<std::uint64_t>(share / TokenMemory::kChunk * TokenMemory::kChunk,
                                   TokenMemory::kLeastPlaces, TokenMemory::kMostPlaces);
}

}  // namespace

TenantMemories::TenantMemories(const TenantMemoriesOptions& options)
    : options_(options), most_places_(most_places_of(options)) {
  FORETOKEN_CHECK(options.n_places >= TokenMemory::kLeastPlaces);
}

TenantMemories::Document TenantMemories::open(TenantSalt salt) {
  Document document;
  document.salt_ = salt;
  return document;
}

void TenantMemories::append(Document& document, std::span<const TokenId> tokens) {
  while (!tokens.empty()) {
    Tenant* tenant = tenant_of(document);
    if (tenant == nullptr) {
      n_dropped_ += tokens.size();
      return;
    }
    // So many tokens take two chunks at most.
    const auto piece = tokens.first(std::min<std::size_t>(tokens.size(), TokenMemory::kChunk));
    if (tenant->memory.n_free_chunks() < 2) grow(*tenant);
    tenant->memory.append(document.written_, piece);
    tokens = tokens.subspan(piece.size());
  }
}

void TenantMemories::close(Document& document) {
  const auto known = by_salt_.find(document.salt_);
  if (known != by_salt_.end() && known->second->generation == document.generation_) {
    Tenant& tenant = *known->second;
    tenant.memory.close(document.written_);
    if (--tenant.n_open == 0) n_idle_places_ += tenant.memory.n_places();
  }
  document.generation_ = 0;
}

void TenantMemories::recall(TenantSalt salt,
                            std::span<const TokenId> query,
                            const RecallRules& rules,
                            Recollection& recollection) {
  if (const Tenant* tenant = used(salt))
    tenant->memory.recall(query, rules, recollection);
  else
    recollection.clear();
}

void TenantMemories::forget(TenantSalt salt) {
  if (const auto known = by_salt_.find(salt); known != by_salt_.end()) drop(known->second);
}

TenantMemoriesStats TenantMemories::stats() const {
  TenantMemoriesStats stats{.n_tenants = tenants_.size(),
                            .n_places = n_reserved_,
                            .n_evicted = n_evicted_,
                            .n_dropped = n_dropped_};
  for (const Tenant& tenant : tenants_) {
    stats.n_tokens += tenant.memory.n_tokens();
    stats.n_evicted += tenant.memory.n_evicted();
    stats.size_bytes += tenant.memory.size_bytes();
  }
  return stats;
}

// ---- tenants and their places

TenantMemories::Tenant* TenantMemories::used(TenantSalt salt) {
  const auto known = by_salt_.find(salt);
  if (known == by_salt_.end()) return nullptr;
  tenants_.splice(tenants_.begin(), tenants_, known->second);
  return &tenants_.front();
}

TenantMemories::Tenant* TenantMemories::used_or_new(TenantSalt salt) {
  if (Tenant* tenant = used(salt)) return tenant;
  if (!make_room(TokenMemory::kLeastPlaces)) return nullptr;
  Tenant& tenant = tenants_.emplace_front();
  tenant.salt = salt;
  tenant.generation = ++n_generations_;
  by_salt_.emplace(salt, tenants_.begin());
  n_reserved_ += TokenMemory::kLeastPlaces;
  n_idle_places_ += TokenMemory::kLeastPlaces;
  return &tenant;
}

TenantMemories::Tenant* TenantMemories::tenant_of(Document& document) {
  Tenant* tenant = used_or_new(document.salt_);
  if (tenant == nullptr || tenant->generation == document.generation_) return tenant;
  document.generation_ = tenant->generation;
  document.written_ = {};
  if (tenant->n_open++ == 0) n_idle_places_ -= tenant->memory.n_places();
  return tenant;
}

// Forgets nothing where all idle tenants together have too few places.
bool TenantMemories::make_room(std::uint64_t n_places) {
  if (n_reserved_ - n_idle_places_ + n_places > options_.n_places) return false;
  for (auto it = tenants_.end(); n_reserved_ + n_places > options_.n_places;) {
    const auto tenant = std::prev(it);
    if (tenant->n_open > 0)
      it = tenant;
    else
      drop(tenant);
  }
  return true;
}

// Doubles a tenant's places. If there is no room for that, or its ring cannot grow now, the
// tenant's new text overwrites its old one. It has an open document, so make_room() does not drop
// it.
void TenantMemories::grow(Tenant& tenant) {
  const std::uint64_t n_now = tenant.memory.n_places();
  const std::uint64_t n_wanted = std::min(2 * n_now, most_places_);
  if (n_wanted == n_now || !tenant.memory.can_grow() || !make_room(n_wanted - n_now)) return;
  tenant.memory.grow(static_cast<std::uint32_t>(n_wanted));
  n_reserved_ += n_wanted - n_now;
}

void TenantMemories::drop(Tenants::iterator tenant) {
  n_evicted_ += tenant->memory.n_tokens() + tenant->memory.n_evicted();
  n_reserved_ -= tenant->memory.n_places();
  if (tenant->n_open == 0) n_idle_places_ -= tenant->memory.n_places();
  by_salt_.erase(tenant->salt);
  tenants_.erase(tenant);
}

}  // namespace foretoken
