// Tokens that an ask of a memory of texts brings, by tenant: what a new sequence of a tenant begins
// with. One tenant's texts say nothing of another's, and tenants share no text. Of more tenants
// than the table has room for, the one without asks for longest is forgotten. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace foretoken {

class LookupGains {
 public:
  static constexpr std::size_t kMostTenants = 256;

  // 1 where nothing is known: it is asked until it has shown what it brings.
  double of(std::uint64_t tenant_salt) const {
    const auto at = tenants_.find(tenant_salt);
    return at == tenants_.end() ? Tenant{}.gain : at->second.gain;
  }
  // Rounds of all sequences of a tenant since an ask: short texts end before one of theirs is due.
  std::uint32_t n_unasked(std::uint64_t tenant_salt) const {
    const auto at = tenants_.find(tenant_salt);
    return at == tenants_.end() ? 0 : at->second.n_unasked;
  }
  void note_round(std::uint64_t tenant_salt) {
    if (const auto at = tenants_.find(tenant_salt); at != tenants_.end()) ++at->second.n_unasked;
  }
  void note_ask(std::uint64_t tenant_salt) {
    if (const auto at = tenants_.find(tenant_salt); at != tenants_.end()) at->second.n_unasked = 0;
  }
  // An ask for a sequence of this tenant brought so many.
  void observe(std::uint64_t tenant_salt, std::uint32_t n_tokens) {
    if (tenants_.size() == kMostTenants && !tenants_.contains(tenant_salt))
      tenants_.erase(std::min_element(tenants_.begin(), tenants_.end(), is_older));
    Tenant& tenant = tenants_[tenant_salt];
    tenant.gain += (n_tokens - tenant.gain) / kMeanOf;
    tenant.last_ask = ++n_asks_;
  }
  std::size_t n_tenants() const { return tenants_.size(); }

 private:
  static constexpr double kMeanOf = 32;  // asks
  struct Tenant {
    double gain = 1;
    std::uint32_t n_unasked = 0;
    std::uint64_t last_ask = 0;
  };
  using Tenants = std::unordered_map<std::uint64_t, Tenant>;
  static bool is_older(const Tenants::value_type& a, const Tenants::value_type& b) {
    return a.second.last_ask < b.second.last_ask;
  }

  Tenants tenants_;  // by salt
  std::uint64_t n_asks_ = 0;
};

}  // namespace foretoken
