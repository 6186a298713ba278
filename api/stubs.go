package api

// Validate returns what is wrong in a resource; call Default first.
func Validate(r Resource) FieldErrors { return nil }
