// Package auditchange writes the change of an audit event in words, for the command line and the console. Begin with Of.
package auditchange
