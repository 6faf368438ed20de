// Package openapi holds the description of the admin API, /api/v1, in OpenAPI 3. scripts/openapi writes it; clients may be made from
// it. Begin with embed.go.
package openapi
